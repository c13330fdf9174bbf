

def under_autocast(dtype, call, *args):
    """Calls a model under autocast, which ends with the call, as accelerate does."""
    with torch.autocast("cuda", dtype=dtype):
        return call(*args)
