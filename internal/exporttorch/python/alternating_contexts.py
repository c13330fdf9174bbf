

def alternating_contexts(save, alternate):
    """Contexts of a checkpoint that keeps the results of some operators, of those in alternate of every other call."""
    calls = {}

    def policy(ctx, func, *args, **kwargs):
        keep = func in save
        if func in alternate:
            key = func, ctx.is_recompute
            calls[key] = calls.get(key, 0) + 1
            keep = calls[key] % 2 == 1
        names = torch.utils.checkpoint.CheckpointPolicy
        return names.MUST_SAVE if keep else names.PREFER_RECOMPUTE

    return torch.utils.checkpoint.create_selective_checkpoint_contexts(policy)
