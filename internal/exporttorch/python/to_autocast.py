

def to_autocast(input):
    return input.to(torch.get_autocast_dtype("cuda")) if torch.is_autocast_enabled("cuda") else input
