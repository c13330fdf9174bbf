

def sms(x):
    return torch.cuda.get_device_properties(x.device).multi_processor_count


def ceil(n, m):
    return -(n // -m)


def head(d):
    return ceil(d, 32) * 32 if d <= 128 else ceil(d, 64) * 64


def num_splits(work, limit, keys):
    """num_splits_heuristic: how many parts of the keys fill the GPU."""
    if work >= 0.8 * limit:
        return 1
    eligible = [n for n in range(1, min(128, limit, keys) + 1) if n == 1 or ceil(keys, n) != ceil(keys, n - 1)]
    efficiency = {n: work * n / limit / ceil(work * n, limit) for n in eligible}
    return min(n for n in eligible if efficiency[n] >= 0.85 * max(efficiency.values()))


def dense(x):
    return x.contiguous() if x.stride(-1) != 1 else x


def empty(like, *size, dtype=torch.float32):
    return torch.empty(size, dtype=dtype, device=like.device)


def _flash_attn_forward(q, k, v, dropout=0.0, causal=False):
    q, k, v = dense(q), dense(k), dense(v)
    b, rows, heads, d = q.shape
    out, lse = torch.empty_like(q), empty(q, b, heads, rows)
    if dropout == 0:
        n = num_splits(b * heads * ceil(rows, 64), 2 * sms(q), ceil(k.shape[1], 256 if d <= 64 else 128 if d <= 128 else 64))
        if n > 1:
            lse_accum, out_accum = empty(q, n, b, heads, rows), empty(q, n, b, heads, rows, head(d))
    rng_state = empty(q, 2, dtype=torch.int64)
    out_accum = lse_accum = None
    return out, lse, rng_state


def _flash_attn_varlen_forward(q, k, v, cu_seqlens_q, cu_seqlens_k, dropout=0.0, causal=False):
    q, k, v = dense(q), dense(k), dense(v)
    return torch.empty_like(q), empty(q, q.shape[1], q.shape[0]), empty(q, 2, dtype=torch.int64)


def accumulate(q, k, dk, dv, batch, size, deterministic):
    heads, groups = q.shape[-2], q.shape[-2] // k.shape[-2]
    dq_accum = torch.zeros(ceil(sms(q), batch * heads), *size, device=q.device) if deterministic else empty(q, *size)
    if groups > 1:
        expanded = (*k.shape[:-1], groups, k.shape[-1])
        dk_expanded, dv_expanded = empty(q, *expanded, dtype=k.dtype), empty(q, *expanded, dtype=k.dtype)
        torch.sum(dk_expanded, -2, out=dk)
        torch.sum(dv_expanded, -2, out=dv)
        del dv_expanded, dk_expanded


def _flash_attn_backward(dout, q, k, v, out, softmax_lse, dq, dk, dv, dropout=0.0, causal=False, deterministic=False):
    dout, q, k, v, out = dense(dout), dense(q), dense(k), dense(v), dense(out)
    b, rows, heads, d = q.shape
    rows = ceil(rows, 128) * 128
    softmax_d = empty(q, b, heads, rows)
    accumulate(q, k, dk, dv, b, (b, rows, heads, head(d)), deterministic)
    return softmax_d


def _flash_attn_varlen_backward(
    dout, q, k, v, out, softmax_lse, dq, dk, dv, cu_seqlens_q, cu_seqlens_k, dropout=0.0, causal=False, deterministic=False
):
    dout, q, k, v, out = dense(dout), dense(q), dense(k), dense(v), dense(out)
    b, heads = cu_seqlens_q.numel() - 1, q.shape[1]
    rows = q.shape[0] + 128 * b
    softmax_d = empty(q, heads, rows)
    accumulate(q, k, dk, dv, b, (rows, heads, head(q.shape[-1])), deterministic)
    return softmax_d
