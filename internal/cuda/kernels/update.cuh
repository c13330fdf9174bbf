// Written by go test ./internal/cuda -update from the formulas of package optim and of torch.lerp.
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
