"""Local training: by autograd, by compiled code, and of many clients at once."""
