"""What wraps a memory body: file heads, token fields, appendices."""
