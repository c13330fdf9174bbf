

class OFTQuantized(OFTLinear):
    """OFT around a layer of 4 or 8 bits, which converts outside of autocast alone."""

    def forward(self, x):
        previous_dtype = x.dtype
        if not torch.is_autocast_enabled():
            x = x.to(self.oft_R.dtype)
        x = self.oft_rotate(x)
        if not torch.is_autocast_enabled():
            x = x.to(previous_dtype)
        result = self.base_layer(x)
        return result
