

def _flash_attn3_mask(q, k, max_seqlen, causal, window, forward):
    """Whether a call is causal, and whether it sees a window alone, as flash_api.cpp takes it."""
    rows, keys = (max_seqlen, max_seqlen) if max_seqlen else (q.shape[1], k.shape[1])
    left, right = -1 if window >= keys - 1 else window, -1 if window >= rows - 1 else window
    if causal and (not forward or rows != 1 or left >= 0):
        right = 0
    causal = left < 0 and right == 0
    return causal, not causal and (left >= 0 or right >= 0)


def _flash_attn3_dense(x):
    return x.contiguous() if x.stride(-1) != 1 else x


def _flash_attn3_up(n, m):
    return -(n // -m) * m


def _flash_attn3_forward(q, k, v, cu_seqlens=None, max_seqlen=0, causal=False, window=-1, softcap=0.0):
    q, k, v = _flash_attn3_dense(q), _flash_attn3_dense(k), _flash_attn3_dense(v)
    causal, local = _flash_attn3_mask(q, k, max_seqlen, causal, window, True)
    apart = cu_seqlens is not None
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty((q.shape[1], q.shape[0]) if apart else (q.shape[0], q.shape[2], q.shape[1]), dtype=torch.float32, device=q.device)
    counts = causal or local or apart if torch.cuda.get_device_capability(q.device) >= (9, 0) else causal and not apart
    if counts or apart:
        batch = cu_seqlens.numel() - 1 if apart else q.shape[0]
        vectors = 2 * apart + (not local) + (causal or local)
        tile_count_semaphore = torch.empty(_flash_attn3_up(batch, 4) * vectors + counts, dtype=torch.int32, device=q.device)
    return out, lse


def _flash_attn3_blocks(q, d, causal, local, softcap):
    """How many rows of queries and of keys a block of the backward kernel has."""
    arch = torch.cuda.get_device_capability(q.device)
    if arch >= (9, 0):
        if d <= 64:
            return 96 if causal and softcap > 0 else 128, 128
        if d == 128:
            return 64 if causal or local or softcap > 0 else 80, 128
        return 64, 128 if d <= 96 else 96 if d <= 192 else 80
    if arch in ((8, 6), (8, 9)):
        return 64 if d <= 192 else 32, 128 if d <= 96 else 96 if d <= 128 else 64
    return 128 if d <= 64 else 64, 128 if d <= 128 else 80 if d <= 192 else 64


def _flash_attn3_backward(
    dout, q, k, v, out, softmax_lse, dq, dk, dv, cu_seqlens=None, max_seqlen=0, causal=False, window=-1, softcap=0.0
):
    dout, q, k, v, out = (_flash_attn3_dense(x) for x in (dout, q, k, v, out))
    causal, local = _flash_attn3_mask(q, k, max_seqlen, causal, window, False)
    heads, shared, d = q.shape[-2], k.shape[-2], next(n for n in (64, 96, 128, 192, 256) if q.shape[-1] <= n)
    m, n = _flash_attn3_blocks(q, d, causal, local, softcap)
    if cu_seqlens is not None:
        batch = cu_seqlens.numel() - 1
        rows, keys = _flash_attn3_up(q.shape[0] + batch * m, m), _flash_attn3_up(k.shape[0] + batch * n, n)
    else:
        batch, max_seqlen = q.shape[0], q.shape[1]
        rows, keys = batch * _flash_attn3_up(q.shape[1], m), batch * _flash_attn3_up(k.shape[1], n)
    softmax_d, softmax_lse_log2, dq_accum = (torch.empty(n, device=q.device) for n in (heads * rows, heads * rows, heads * rows * d))
    if shared != heads:
        dk_accum, dv_accum = torch.zeros(shared * keys * d, device=q.device), torch.zeros(shared * keys * d, device=q.device)
    dq_semaphore = torch.empty(-(max_seqlen // -m), batch, heads, dtype=torch.int32, device=q.device)
    dq_semaphore = dv_accum = dk_accum = dq_accum = softmax_lse_log2 = None
    return softmax_d
