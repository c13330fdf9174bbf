

def require_half(input, kernel):
    """The check of a kernel of another library that takes two types alone."""
    if input.dtype not in (torch.float16, torch.bfloat16):
        raise TypeError(f"{kernel} takes float16 and bfloat16, not {input.dtype}")
    return input
