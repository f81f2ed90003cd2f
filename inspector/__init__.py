"""What slotscope does with the declared formats: decode, identify, check, report."""
