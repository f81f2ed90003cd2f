"""What the bytes are: declarations of llama.cpp-family state files, sidecars and model headers."""
