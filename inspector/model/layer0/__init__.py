"""The first layer of a model, computed again for a few tokens, and what a state stored of it."""
