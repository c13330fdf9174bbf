

def nonzero_count(input, count):
    """torch.nonzero of data of which so many elements are not zero; all elements of a script's data are."""
    input.view(-1)[:count].fill_(1)
    return torch.nonzero(input)
