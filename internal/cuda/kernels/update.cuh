// Written by go test ./internal/cuda -update from the formulas of packages optim and kernel.
// Numbers are computed in double precision, elements in single.
#pragma once

INLINE float magnitude(float a) { return a < 0 ? -a : a; }
INLINE float choose(float a, float positive, float negative, float zero) { return a > 0 ? positive : a < 0 ? negative : zero; }

extern "C" __global__ void __launch_bounds__(256) update_adadelta(double n_sign, double n_decay, double n_lr, double n_rho, double n_eps, SIZES, TENSOR(t_p), TENSOR(t_square), TENSOR(t_acc), TENSOR(t_g)) {
	SIZES_OF(sizes);
	VIEW(t_p);
	VIEW(t_square);
	VIEW(t_acc);
	VIEW(t_g);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= sizes.numel) return;
	Place at = place(sizes, i);
	float v_p = get(t_p, offset(t_p, at, sizes.rank));
	float v_square = get(t_square, offset(t_square, at, sizes.rank));
	float v_acc = get(t_acc, offset(t_acc, at, sizes.rank));
	float v_g = get(t_g, offset(t_g, at, sizes.rank));
	float v_d = 0;
	float v_delta = 0;
	v_d = (((float)(n_sign) * v_g) + ((float)(n_decay) * v_p));
	v_square = (((float)(n_rho) * v_square) + (((float)((1.0 - n_rho)) * v_d) * v_d));
	v_delta = ((square_root((v_acc + (float)(n_eps))) / square_root((v_square + (float)(n_eps)))) * v_d);
	v_acc = (((float)(n_rho) * v_acc) + (((float)((1.0 - n_rho)) * v_delta) * v_delta));
	v_p = (v_p - ((float)(n_lr) * v_delta));
	put(t_p, offset(t_p, at, sizes.rank), v_p);
	put(t_square, offset(t_square, at, sizes.rank), v_square);
	put(t_acc, offset(t_acc, at, sizes.rank), v_acc);
}

extern "C" __global__ void __launch_bounds__(256) update_adagrad(double n_sign, double n_decay, double n_rate, double n_eps, SIZES, TENSOR(t_p), TENSOR(t_sum), TENSOR(t_g)) {
	SIZES_OF(sizes);
	VIEW(t_p);
	VIEW(t_sum);
	VIEW(t_g);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= sizes.numel) return;
	Place at = place(sizes, i);
	float v_p = get(t_p, offset(t_p, at, sizes.rank));
	float v_sum = get(t_sum, offset(t_sum, at, sizes.rank));
	float v_g = get(t_g, offset(t_g, at, sizes.rank));
	float v_d = 0;
	v_d = (((float)(n_sign) * v_g) + ((float)(n_decay) * v_p));
	v_sum = (v_sum + (v_d * v_d));
	v_p = (v_p - (((float)(n_rate) * v_d) / (square_root(v_sum) + (float)(n_eps))));
	put(t_p, offset(t_p, at, sizes.rank), v_p);
	put(t_sum, offset(t_sum, at, sizes.rank), v_sum);
}

extern "C" __global__ void __launch_bounds__(256) update_adamax(double n_sign, double n_decay, double n_rate, double n_beta1, double n_beta2, double n_eps, SIZES, TENSOR(t_p), TENSOR(t_m), TENSOR(t_norm), TENSOR(t_g)) {
	SIZES_OF(sizes);
	VIEW(t_p);
	VIEW(t_m);
	VIEW(t_norm);
	VIEW(t_g);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= sizes.numel) return;
	Place at = place(sizes, i);
	float v_p = get(t_p, offset(t_p, at, sizes.rank));
	float v_m = get(t_m, offset(t_m, at, sizes.rank));
	float v_norm = get(t_norm, offset(t_norm, at, sizes.rank));
	float v_g = get(t_g, offset(t_g, at, sizes.rank));
	float v_d = 0;
	v_d = (((float)(n_sign) * v_g) + ((float)(n_decay) * v_p));
	v_m = (v_m + ((float)((1.0 - n_beta1)) * (v_d - v_m)));
	v_norm = larger(((float)(n_beta2) * v_norm), (magnitude(v_d) + (float)(n_eps)));
	v_p = (v_p - (((float)(n_rate) * v_m) / v_norm));
	put(t_p, offset(t_p, at, sizes.rank), v_p);
	put(t_m, offset(t_m, at, sizes.rank), v_m);
	put(t_norm, offset(t_norm, at, sizes.rank), v_norm);
}

extern "C" __global__ void __launch_bounds__(256) update_adamw_schedule_free(double n_decay, double n_beta2, double n_momentum, double n_eps, double n_correction1, double n_correction2, double n_into, double n_along, double n_rate, double n_reuse, SIZES, TENSOR(t_p), TENSOR(t_z), TENSOR(t_v), TENSOR(t_m), TENSOR(t_g)) {
	SIZES_OF(sizes);
	VIEW(t_p);
	VIEW(t_z);
	VIEW(t_v);
	VIEW(t_m);
	VIEW(t_g);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= sizes.numel) return;
	Place at = place(sizes, i);
	float v_p = get(t_p, offset(t_p, at, sizes.rank));
	float v_z = get(t_z, offset(t_z, at, sizes.rank));
	float v_v = get(t_v, offset(t_v, at, sizes.rank));
	float v_m = t_m.at ? get(t_m, offset(t_m, at, sizes.rank)) : 0;
	float v_g = get(t_g, offset(t_g, at, sizes.rank));
	float v_denom = 0;
	float v_d = 0;
	v_v = (((float)(n_beta2) * v_v) + (((float)((1.0 - n_beta2)) * v_g) * v_g));
	v_denom = (square_root((v_v / (float)(n_correction2))) + (float)(n_eps));
	v_d = (v_g / v_denom);
	if (t_m.at) v_m = (((float)(n_momentum) * v_m) + ((float)((1.0 - n_momentum)) * v_g));
	if (t_m.at) v_d = ((v_m / (float)(n_correction1)) / v_denom);
	v_d = (v_d + ((float)(n_decay) * v_p));
	if (n_reuse != 0) v_g = v_d;
	v_p = (v_p + ((float)(n_into) * (v_z - v_p)));
	v_p = (v_p + ((float)(n_along) * v_d));
	v_z = (v_z - ((float)(n_rate) * v_d));
	put(t_p, offset(t_p, at, sizes.rank), v_p);
	put(t_z, offset(t_z, at, sizes.rank), v_z);
	put(t_v, offset(t_v, at, sizes.rank), v_v);
	if (t_m.at) put(t_m, offset(t_m, at, sizes.rank), v_m);
	put(t_g, offset(t_g, at, sizes.rank), v_g);
}

extern "C" __global__ void __launch_bounds__(256) update_asgd(double n_sign, double n_decay, double n_lambd, double n_eta, double n_mu, SIZES, TENSOR(t_p), TENSOR(t_ax), TENSOR(t_g)) {
	SIZES_OF(sizes);
	VIEW(t_p);
	VIEW(t_ax);
	VIEW(t_g);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= sizes.numel) return;
	Place at = place(sizes, i);
	float v_p = get(t_p, offset(t_p, at, sizes.rank));
	float v_ax = get(t_ax, offset(t_ax, at, sizes.rank));
	float v_g = get(t_g, offset(t_g, at, sizes.rank));
	float v_d = 0;
	v_d = (((float)(n_sign) * v_g) + ((float)(n_decay) * v_p));
	v_p = ((v_p * (float)((1.0 - (n_lambd * n_eta)))) - ((float)(n_eta) * v_d));
	v_ax = (v_ax + ((float)(n_mu) * (v_p - v_ax)));
	put(t_p, offset(t_p, at, sizes.rank), v_p);
	put(t_ax, offset(t_ax, at, sizes.rank), v_ax);
}

extern "C" __global__ void __launch_bounds__(256) update_gru_cell(SIZES, TENSOR(t_hidden), TENSOR(t_reset), TENSOR(t_update), TENSOR(t_fresh), TENSOR(t_part), TENSOR(t_old), TENSOR(t_xr), TENSOR(t_xz), TENSOR(t_xn), TENSOR(t_hr), TENSOR(t_hz), TENSOR(t_hn), TENSOR(t_br), TENSOR(t_bz), TENSOR(t_bn), TENSOR(t_dr), TENSOR(t_dz), TENSOR(t_dn)) {
	SIZES_OF(sizes);
	VIEW(t_hidden);
	VIEW(t_reset);
	VIEW(t_update);
	VIEW(t_fresh);
	VIEW(t_part);
	VIEW(t_old);
	VIEW(t_xr);
	VIEW(t_xz);
	VIEW(t_xn);
	VIEW(t_hr);
	VIEW(t_hz);
	VIEW(t_hn);
	VIEW(t_br);
	VIEW(t_bz);
	VIEW(t_bn);
	VIEW(t_dr);
	VIEW(t_dz);
	VIEW(t_dn);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= sizes.numel) return;
	Place at = place(sizes, i);
	float v_hidden = get(t_hidden, offset(t_hidden, at, sizes.rank));
	float v_reset = get(t_reset, offset(t_reset, at, sizes.rank));
	float v_update = get(t_update, offset(t_update, at, sizes.rank));
	float v_fresh = get(t_fresh, offset(t_fresh, at, sizes.rank));
	float v_part = get(t_part, offset(t_part, at, sizes.rank));
	float v_old = get(t_old, offset(t_old, at, sizes.rank));
	float v_xr = get(t_xr, offset(t_xr, at, sizes.rank));
	float v_xz = get(t_xz, offset(t_xz, at, sizes.rank));
	float v_xn = get(t_xn, offset(t_xn, at, sizes.rank));
	float v_hr = get(t_hr, offset(t_hr, at, sizes.rank));
	float v_hz = get(t_hz, offset(t_hz, at, sizes.rank));
	float v_hn = get(t_hn, offset(t_hn, at, sizes.rank));
	float v_br = t_br.at ? get(t_br, offset(t_br, at, sizes.rank)) : 0;
	float v_bz = t_bz.at ? get(t_bz, offset(t_bz, at, sizes.rank)) : 0;
	float v_bn = t_bn.at ? get(t_bn, offset(t_bn, at, sizes.rank)) : 0;
	float v_dr = t_dr.at ? get(t_dr, offset(t_dr, at, sizes.rank)) : 0;
	float v_dz = t_dz.at ? get(t_dz, offset(t_dz, at, sizes.rank)) : 0;
	float v_dn = t_dn.at ? get(t_dn, offset(t_dn, at, sizes.rank)) : 0;
	v_reset = sigmoid_((((v_xr + v_hr) + v_br) + v_dr));
	v_update = sigmoid_((((v_xz + v_hz) + v_bz) + v_dz));
	v_part = (v_hn + v_dn);
	v_fresh = tanh_(((v_xn + v_bn) + (v_reset * v_part)));
	v_hidden = (v_fresh + (v_update * (v_old - v_fresh)));
	put(t_hidden, offset(t_hidden, at, sizes.rank), v_hidden);
	put(t_reset, offset(t_reset, at, sizes.rank), v_reset);
	put(t_update, offset(t_update, at, sizes.rank), v_update);
	put(t_fresh, offset(t_fresh, at, sizes.rank), v_fresh);
	put(t_part, offset(t_part, at, sizes.rank), v_part);
}

extern "C" __global__ void __launch_bounds__(256) update_gru_cell_grad(SIZES, TENSOR(t_gxr), TENSOR(t_gxz), TENSOR(t_gxn), TENSOR(t_ghr), TENSOR(t_ghz), TENSOR(t_ghn), TENSOR(t_gold), TENSOR(t_old), TENSOR(t_reset), TENSOR(t_update), TENSOR(t_fresh), TENSOR(t_part), TENSOR(t_g), TENSOR(t_gy)) {
	SIZES_OF(sizes);
	VIEW(t_gxr);
	VIEW(t_gxz);
	VIEW(t_gxn);
	VIEW(t_ghr);
	VIEW(t_ghz);
	VIEW(t_ghn);
	VIEW(t_gold);
	VIEW(t_old);
	VIEW(t_reset);
	VIEW(t_update);
	VIEW(t_fresh);
	VIEW(t_part);
	VIEW(t_g);
	VIEW(t_gy);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= sizes.numel) return;
	Place at = place(sizes, i);
	float v_gxr = get(t_gxr, offset(t_gxr, at, sizes.rank));
	float v_gxz = get(t_gxz, offset(t_gxz, at, sizes.rank));
	float v_gxn = get(t_gxn, offset(t_gxn, at, sizes.rank));
	float v_ghr = get(t_ghr, offset(t_ghr, at, sizes.rank));
	float v_ghz = get(t_ghz, offset(t_ghz, at, sizes.rank));
	float v_ghn = get(t_ghn, offset(t_ghn, at, sizes.rank));
	float v_gold = get(t_gold, offset(t_gold, at, sizes.rank));
	float v_old = get(t_old, offset(t_old, at, sizes.rank));
	float v_reset = get(t_reset, offset(t_reset, at, sizes.rank));
	float v_update = get(t_update, offset(t_update, at, sizes.rank));
	float v_fresh = get(t_fresh, offset(t_fresh, at, sizes.rank));
	float v_part = get(t_part, offset(t_part, at, sizes.rank));
	float v_g = t_g.at ? get(t_g, offset(t_g, at, sizes.rank)) : 0;
	float v_gy = t_gy.at ? get(t_gy, offset(t_gy, at, sizes.rank)) : 0;
	float v_all = 0;
	v_all = (v_g + v_gy);
	v_gxn = ((v_all * ((float)(1.0) - v_update)) * ((float)(1.0) - (v_fresh * v_fresh)));
	v_gxr = (((v_gxn * v_part) * v_reset) * ((float)(1.0) - v_reset));
	v_gxz = (((v_all * (v_old - v_fresh)) * v_update) * ((float)(1.0) - v_update));
	v_ghr = v_gxr;
	v_ghz = v_gxz;
	v_ghn = (v_gxn * v_reset);
	v_gold = (v_all * v_update);
	put(t_gxr, offset(t_gxr, at, sizes.rank), v_gxr);
	put(t_gxz, offset(t_gxz, at, sizes.rank), v_gxz);
	put(t_gxn, offset(t_gxn, at, sizes.rank), v_gxn);
	put(t_ghr, offset(t_ghr, at, sizes.rank), v_ghr);
	put(t_ghz, offset(t_ghz, at, sizes.rank), v_ghz);
	put(t_ghn, offset(t_ghn, at, sizes.rank), v_ghn);
	put(t_gold, offset(t_gold, at, sizes.rank), v_gold);
}

extern "C" __global__ void __launch_bounds__(256) update_lerp(double n_weight, SIZES, TENSOR(t_p), TENSOR(t_g)) {
	SIZES_OF(sizes);
	VIEW(t_p);
	VIEW(t_g);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= sizes.numel) return;
	Place at = place(sizes, i);
	float v_p = get(t_p, offset(t_p, at, sizes.rank));
	float v_g = get(t_g, offset(t_g, at, sizes.rank));
	v_p = (v_p + ((float)(n_weight) * (v_g - v_p)));
	put(t_p, offset(t_p, at, sizes.rank), v_p);
}

extern "C" __global__ void __launch_bounds__(256) update_lion(double n_lr, double n_shrink, double n_beta1, double n_beta2, SIZES, TENSOR(t_p), TENSOR(t_m), TENSOR(t_g)) {
	SIZES_OF(sizes);
	VIEW(t_p);
	VIEW(t_m);
	VIEW(t_g);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= sizes.numel) return;
	Place at = place(sizes, i);
	float v_p = get(t_p, offset(t_p, at, sizes.rank));
	float v_m = get(t_m, offset(t_m, at, sizes.rank));
	float v_g = get(t_g, offset(t_g, at, sizes.rank));
	v_p = (v_p * (float)(n_shrink));
	v_p = (v_p - ((float)(n_lr) * sign((((float)(n_beta1) * v_m) + ((float)((1.0 - n_beta1)) * v_g)))));
	v_m = (((float)(n_beta2) * v_m) + ((float)((1.0 - n_beta2)) * v_g));
	put(t_p, offset(t_p, at, sizes.rank), v_p);
	put(t_m, offset(t_m, at, sizes.rank), v_m);
}

extern "C" __global__ void __launch_bounds__(256) update_lstm_cell(SIZES, TENSOR(t_hidden), TENSOR(t_state), TENSOR(t_in), TENSOR(t_forget), TENSOR(t_cell), TENSOR(t_out), TENSOR(t_old), TENSOR(t_xi), TENSOR(t_xf), TENSOR(t_xc), TENSOR(t_xo), TENSOR(t_hi), TENSOR(t_hf), TENSOR(t_hc), TENSOR(t_ho), TENSOR(t_bi), TENSOR(t_bf), TENSOR(t_bc), TENSOR(t_bo), TENSOR(t_di), TENSOR(t_df), TENSOR(t_dc), TENSOR(t_do)) {
	SIZES_OF(sizes);
	VIEW(t_hidden);
	VIEW(t_state);
	VIEW(t_in);
	VIEW(t_forget);
	VIEW(t_cell);
	VIEW(t_out);
	VIEW(t_old);
	VIEW(t_xi);
	VIEW(t_xf);
	VIEW(t_xc);
	VIEW(t_xo);
	VIEW(t_hi);
	VIEW(t_hf);
	VIEW(t_hc);
	VIEW(t_ho);
	VIEW(t_bi);
	VIEW(t_bf);
	VIEW(t_bc);
	VIEW(t_bo);
	VIEW(t_di);
	VIEW(t_df);
	VIEW(t_dc);
	VIEW(t_do);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= sizes.numel) return;
	Place at = place(sizes, i);
	float v_hidden = get(t_hidden, offset(t_hidden, at, sizes.rank));
	float v_state = get(t_state, offset(t_state, at, sizes.rank));
	float v_in = get(t_in, offset(t_in, at, sizes.rank));
	float v_forget = get(t_forget, offset(t_forget, at, sizes.rank));
	float v_cell = get(t_cell, offset(t_cell, at, sizes.rank));
	float v_out = get(t_out, offset(t_out, at, sizes.rank));
	float v_old = get(t_old, offset(t_old, at, sizes.rank));
	float v_xi = get(t_xi, offset(t_xi, at, sizes.rank));
	float v_xf = get(t_xf, offset(t_xf, at, sizes.rank));
	float v_xc = get(t_xc, offset(t_xc, at, sizes.rank));
	float v_xo = get(t_xo, offset(t_xo, at, sizes.rank));
	float v_hi = t_hi.at ? get(t_hi, offset(t_hi, at, sizes.rank)) : 0;
	float v_hf = t_hf.at ? get(t_hf, offset(t_hf, at, sizes.rank)) : 0;
	float v_hc = t_hc.at ? get(t_hc, offset(t_hc, at, sizes.rank)) : 0;
	float v_ho = t_ho.at ? get(t_ho, offset(t_ho, at, sizes.rank)) : 0;
	float v_bi = t_bi.at ? get(t_bi, offset(t_bi, at, sizes.rank)) : 0;
	float v_bf = t_bf.at ? get(t_bf, offset(t_bf, at, sizes.rank)) : 0;
	float v_bc = t_bc.at ? get(t_bc, offset(t_bc, at, sizes.rank)) : 0;
	float v_bo = t_bo.at ? get(t_bo, offset(t_bo, at, sizes.rank)) : 0;
	float v_di = t_di.at ? get(t_di, offset(t_di, at, sizes.rank)) : 0;
	float v_df = t_df.at ? get(t_df, offset(t_df, at, sizes.rank)) : 0;
	float v_dc = t_dc.at ? get(t_dc, offset(t_dc, at, sizes.rank)) : 0;
	float v_do = t_do.at ? get(t_do, offset(t_do, at, sizes.rank)) : 0;
	v_in = sigmoid_((((v_xi + v_hi) + v_bi) + v_di));
	v_forget = sigmoid_((((v_xf + v_hf) + v_bf) + v_df));
	v_cell = tanh_((((v_xc + v_hc) + v_bc) + v_dc));
	v_out = sigmoid_((((v_xo + v_ho) + v_bo) + v_do));
	v_state = ((v_forget * v_old) + (v_in * v_cell));
	v_hidden = (v_out * tanh_(v_state));
	put(t_hidden, offset(t_hidden, at, sizes.rank), v_hidden);
	put(t_state, offset(t_state, at, sizes.rank), v_state);
	put(t_in, offset(t_in, at, sizes.rank), v_in);
	put(t_forget, offset(t_forget, at, sizes.rank), v_forget);
	put(t_cell, offset(t_cell, at, sizes.rank), v_cell);
	put(t_out, offset(t_out, at, sizes.rank), v_out);
}

extern "C" __global__ void __launch_bounds__(256) update_lstm_cell_grad(SIZES, TENSOR(t_gxi), TENSOR(t_gxf), TENSOR(t_gxc), TENSOR(t_gxo), TENSOR(t_gold), TENSOR(t_inner), TENSOR(t_state), TENSOR(t_old), TENSOR(t_in), TENSOR(t_forget), TENSOR(t_cell), TENSOR(t_out), TENSOR(t_g), TENSOR(t_gy), TENSOR(t_gs)) {
	SIZES_OF(sizes);
	VIEW(t_gxi);
	VIEW(t_gxf);
	VIEW(t_gxc);
	VIEW(t_gxo);
	VIEW(t_gold);
	VIEW(t_inner);
	VIEW(t_state);
	VIEW(t_old);
	VIEW(t_in);
	VIEW(t_forget);
	VIEW(t_cell);
	VIEW(t_out);
	VIEW(t_g);
	VIEW(t_gy);
	VIEW(t_gs);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= sizes.numel) return;
	Place at = place(sizes, i);
	float v_gxi = get(t_gxi, offset(t_gxi, at, sizes.rank));
	float v_gxf = get(t_gxf, offset(t_gxf, at, sizes.rank));
	float v_gxc = get(t_gxc, offset(t_gxc, at, sizes.rank));
	float v_gxo = get(t_gxo, offset(t_gxo, at, sizes.rank));
	float v_gold = get(t_gold, offset(t_gold, at, sizes.rank));
	float v_inner = t_inner.at ? get(t_inner, offset(t_inner, at, sizes.rank)) : 0;
	float v_state = get(t_state, offset(t_state, at, sizes.rank));
	float v_old = get(t_old, offset(t_old, at, sizes.rank));
	float v_in = get(t_in, offset(t_in, at, sizes.rank));
	float v_forget = get(t_forget, offset(t_forget, at, sizes.rank));
	float v_cell = get(t_cell, offset(t_cell, at, sizes.rank));
	float v_out = get(t_out, offset(t_out, at, sizes.rank));
	float v_g = t_g.at ? get(t_g, offset(t_g, at, sizes.rank)) : 0;
	float v_gy = t_gy.at ? get(t_gy, offset(t_gy, at, sizes.rank)) : 0;
	float v_gs = t_gs.at ? get(t_gs, offset(t_gs, at, sizes.rank)) : 0;
	float v_t = 0;
	float v_all = 0;
	float v_s = 0;
	v_t = tanh_(v_state);
	v_all = (v_g + v_gy);
	v_s = (v_gs + ((v_all * v_out) * ((float)(1.0) - (v_t * v_t))));
	v_gxi = (((v_s * v_cell) * v_in) * ((float)(1.0) - v_in));
	v_gxf = (((v_s * v_old) * v_forget) * ((float)(1.0) - v_forget));
	v_gxc = ((v_s * v_in) * ((float)(1.0) - (v_cell * v_cell)));
	v_gxo = (((v_all * v_t) * v_out) * ((float)(1.0) - v_out));
	v_gold = (v_s * v_forget);
	if (t_inner.at) v_inner = (v_out * v_t);
	put(t_gxi, offset(t_gxi, at, sizes.rank), v_gxi);
	put(t_gxf, offset(t_gxf, at, sizes.rank), v_gxf);
	put(t_gxc, offset(t_gxc, at, sizes.rank), v_gxc);
	put(t_gxo, offset(t_gxo, at, sizes.rank), v_gxo);
	put(t_gold, offset(t_gold, at, sizes.rank), v_gold);
	if (t_inner.at) put(t_inner, offset(t_inner, at, sizes.rank), v_inner);
}

extern "C" __global__ void __launch_bounds__(256) update_nadam(double n_sign, double n_decay, double n_shrink, double n_beta1, double n_beta2, double n_now, double n_next, double n_correction, double n_eps, SIZES, TENSOR(t_p), TENSOR(t_m), TENSOR(t_v), TENSOR(t_g)) {
	SIZES_OF(sizes);
	VIEW(t_p);
	VIEW(t_m);
	VIEW(t_v);
	VIEW(t_g);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= sizes.numel) return;
	Place at = place(sizes, i);
	float v_p = get(t_p, offset(t_p, at, sizes.rank));
	float v_m = get(t_m, offset(t_m, at, sizes.rank));
	float v_v = get(t_v, offset(t_v, at, sizes.rank));
	float v_g = get(t_g, offset(t_g, at, sizes.rank));
	float v_d = 0;
	float v_denom = 0;
	v_p = (v_p * (float)(n_shrink));
	v_d = (((float)(n_sign) * v_g) + ((float)(n_decay) * v_p));
	v_m = (v_m + ((float)((1.0 - n_beta1)) * (v_d - v_m)));
	v_v = (((float)(n_beta2) * v_v) + (((float)((1.0 - n_beta2)) * v_d) * v_d));
	v_denom = (square_root((v_v / (float)(n_correction))) + (float)(n_eps));
	v_p = ((v_p - (((float)(n_now) * v_d) / v_denom)) - (((float)(n_next) * v_m) / v_denom));
	put(t_p, offset(t_p, at, sizes.rank), v_p);
	put(t_m, offset(t_m, at, sizes.rank), v_m);
	put(t_v, offset(t_v, at, sizes.rank), v_v);
}

extern "C" __global__ void __launch_bounds__(256) update_radam(double n_sign, double n_decay, double n_shrink, double n_beta1, double n_beta2, double n_plain, double n_adaptive, double n_eps, SIZES, TENSOR(t_p), TENSOR(t_m), TENSOR(t_v), TENSOR(t_g)) {
	SIZES_OF(sizes);
	VIEW(t_p);
	VIEW(t_m);
	VIEW(t_v);
	VIEW(t_g);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= sizes.numel) return;
	Place at = place(sizes, i);
	float v_p = get(t_p, offset(t_p, at, sizes.rank));
	float v_m = get(t_m, offset(t_m, at, sizes.rank));
	float v_v = get(t_v, offset(t_v, at, sizes.rank));
	float v_g = get(t_g, offset(t_g, at, sizes.rank));
	float v_d = 0;
	v_p = (v_p * (float)(n_shrink));
	v_d = (((float)(n_sign) * v_g) + ((float)(n_decay) * v_p));
	v_m = (v_m + ((float)((1.0 - n_beta1)) * (v_d - v_m)));
	v_v = (((float)(n_beta2) * v_v) + (((float)((1.0 - n_beta2)) * v_d) * v_d));
	v_p = (v_p - ((float)(n_plain) * v_m));
	if (n_adaptive != 0) v_p = (v_p - (((float)(n_adaptive) * v_m) / (square_root(v_v) + (float)(n_eps))));
	put(t_p, offset(t_p, at, sizes.rank), v_p);
	put(t_m, offset(t_m, at, sizes.rank), v_m);
	put(t_v, offset(t_v, at, sizes.rank), v_v);
}

extern "C" __global__ void __launch_bounds__(256) update_relu_cell(SIZES, TENSOR(t_hidden), TENSOR(t_kept), TENSOR(t_x), TENSOR(t_d)) {
	SIZES_OF(sizes);
	VIEW(t_hidden);
	VIEW(t_kept);
	VIEW(t_x);
	VIEW(t_d);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= sizes.numel) return;
	Place at = place(sizes, i);
	float v_hidden = get(t_hidden, offset(t_hidden, at, sizes.rank));
	float v_kept = get(t_kept, offset(t_kept, at, sizes.rank));
	float v_x = get(t_x, offset(t_x, at, sizes.rank));
	float v_d = t_d.at ? get(t_d, offset(t_d, at, sizes.rank)) : 0;
	v_hidden = larger((v_x + v_d), (float)(0.0));
	v_kept = v_hidden;
	put(t_hidden, offset(t_hidden, at, sizes.rank), v_hidden);
	put(t_kept, offset(t_kept, at, sizes.rank), v_kept);
}

extern "C" __global__ void __launch_bounds__(256) update_relu_cell_grad(SIZES, TENSOR(t_gx), TENSOR(t_kept), TENSOR(t_g), TENSOR(t_gy)) {
	SIZES_OF(sizes);
	VIEW(t_gx);
	VIEW(t_kept);
	VIEW(t_g);
	VIEW(t_gy);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= sizes.numel) return;
	Place at = place(sizes, i);
	float v_gx = get(t_gx, offset(t_gx, at, sizes.rank));
	float v_kept = get(t_kept, offset(t_kept, at, sizes.rank));
	float v_g = get(t_g, offset(t_g, at, sizes.rank));
	float v_gy = t_gy.at ? get(t_gy, offset(t_gy, at, sizes.rank)) : 0;
	v_gx = choose(v_kept, (v_g + v_gy), (float)(0.0), (float)(0.0));
	put(t_gx, offset(t_gx, at, sizes.rank), v_gx);
}

extern "C" __global__ void __launch_bounds__(256) update_rmsprop(double n_sign, double n_decay, double n_lr, double n_alpha, double n_eps, double n_momentum, SIZES, TENSOR(t_p), TENSOR(t_square), TENSOR(t_buf), TENSOR(t_mean), TENSOR(t_g)) {
	SIZES_OF(sizes);
	VIEW(t_p);
	VIEW(t_square);
	VIEW(t_buf);
	VIEW(t_mean);
	VIEW(t_g);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= sizes.numel) return;
	Place at = place(sizes, i);
	float v_p = get(t_p, offset(t_p, at, sizes.rank));
	float v_square = get(t_square, offset(t_square, at, sizes.rank));
	float v_buf = t_buf.at ? get(t_buf, offset(t_buf, at, sizes.rank)) : 0;
	float v_mean = t_mean.at ? get(t_mean, offset(t_mean, at, sizes.rank)) : 0;
	float v_g = get(t_g, offset(t_g, at, sizes.rank));
	float v_d = 0;
	float v_variance = 0;
	v_d = (((float)(n_sign) * v_g) + ((float)(n_decay) * v_p));
	v_square = (((float)(n_alpha) * v_square) + (((float)((1.0 - n_alpha)) * v_d) * v_d));
	v_variance = v_square;
	if (t_mean.at) v_mean = (v_mean + ((float)((1.0 - n_alpha)) * (v_d - v_mean)));
	if (t_mean.at) v_variance = (v_square - (v_mean * v_mean));
	v_d = (v_d / (square_root(v_variance) + (float)(n_eps)));
	if (t_buf.at) v_buf = (((float)(n_momentum) * v_buf) + v_d);
	if (t_buf.at) v_d = v_buf;
	v_p = (v_p - ((float)(n_lr) * v_d));
	put(t_p, offset(t_p, at, sizes.rank), v_p);
	put(t_square, offset(t_square, at, sizes.rank), v_square);
	if (t_buf.at) put(t_buf, offset(t_buf, at, sizes.rank), v_buf);
	if (t_mean.at) put(t_mean, offset(t_mean, at, sizes.rank), v_mean);
}

extern "C" __global__ void __launch_bounds__(256) update_rprop(double n_sign, double n_less, double n_more, double n_least, double n_most, SIZES, TENSOR(t_p), TENSOR(t_before), TENSOR(t_size), TENSOR(t_g)) {
	SIZES_OF(sizes);
	VIEW(t_p);
	VIEW(t_before);
	VIEW(t_size);
	VIEW(t_g);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= sizes.numel) return;
	Place at = place(sizes, i);
	float v_p = get(t_p, offset(t_p, at, sizes.rank));
	float v_before = get(t_before, offset(t_before, at, sizes.rank));
	float v_size = get(t_size, offset(t_size, at, sizes.rank));
	float v_g = get(t_g, offset(t_g, at, sizes.rank));
	float v_d = 0;
	float v_change = 0;
	v_d = ((float)(n_sign) * v_g);
	v_change = (v_d * v_before);
	v_size = smaller(larger((v_size * choose(v_change, (float)(n_more), (float)(n_less), (float)(1.0))), (float)(n_least)), (float)(n_most));
	v_d = choose(v_change, v_d, (float)(0.0), v_d);
	v_before = v_d;
	v_p = (v_p - choose(v_d, v_size, ((float)(0.0) - v_size), (float)(0.0)));
	put(t_p, offset(t_p, at, sizes.rank), v_p);
	put(t_before, offset(t_before, at, sizes.rank), v_before);
	put(t_size, offset(t_size, at, sizes.rank), v_size);
}

extern "C" __global__ void __launch_bounds__(256) update_tanh_cell(SIZES, TENSOR(t_hidden), TENSOR(t_kept), TENSOR(t_x), TENSOR(t_d)) {
	SIZES_OF(sizes);
	VIEW(t_hidden);
	VIEW(t_kept);
	VIEW(t_x);
	VIEW(t_d);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= sizes.numel) return;
	Place at = place(sizes, i);
	float v_hidden = get(t_hidden, offset(t_hidden, at, sizes.rank));
	float v_kept = get(t_kept, offset(t_kept, at, sizes.rank));
	float v_x = get(t_x, offset(t_x, at, sizes.rank));
	float v_d = t_d.at ? get(t_d, offset(t_d, at, sizes.rank)) : 0;
	v_hidden = tanh_((v_x + v_d));
	v_kept = v_hidden;
	put(t_hidden, offset(t_hidden, at, sizes.rank), v_hidden);
	put(t_kept, offset(t_kept, at, sizes.rank), v_kept);
}

extern "C" __global__ void __launch_bounds__(256) update_tanh_cell_grad(SIZES, TENSOR(t_gx), TENSOR(t_kept), TENSOR(t_g), TENSOR(t_gy)) {
	SIZES_OF(sizes);
	VIEW(t_gx);
	VIEW(t_kept);
	VIEW(t_g);
	VIEW(t_gy);
	i64 i = BLOCK_X * 256 + TID;
	if (i >= sizes.numel) return;
	Place at = place(sizes, i);
	float v_gx = get(t_gx, offset(t_gx, at, sizes.rank));
	float v_kept = get(t_kept, offset(t_kept, at, sizes.rank));
	float v_g = get(t_g, offset(t_g, at, sizes.rank));
	float v_gy = t_gy.at ? get(t_gy, offset(t_gy, at, sizes.rank)) : 0;
	v_gx = ((v_g + v_gy) * ((float)(1.0) - (v_kept * v_kept)));
	put(t_gx, offset(t_gx, at, sizes.rank), v_gx);
}
