

def launch(output, kernel):
    """A kernel of another library, which writes into a tensor: what it computes is left out."""
    return output
