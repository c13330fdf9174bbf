package kernel

// Steps of optimizers of torch.optim and of other packages, element by element: p
// is the parameter, g its gradient, what lies between them its state. Numbers that
// a step's count decides, such as corrections of a bias, come with the call. The
// formulas are those of the for-loop implementations; they are computed in the
// accumulation type and rounded when an operand is written.
var (
	// torch/optim/adadelta.py: _single_tensor_adadelta
	Adadelta = updating("adadelta", "p square acc", "sign decay lr rho eps",
		"d = sign*g + decay*p",
		"square = rho*square + (1-rho)*d*d",
		"delta = sqrt(acc+eps) / sqrt(square+eps) * d",
		"acc = rho*acc + (1-rho)*delta*delta",
		"p = p - lr*delta")

	// torch/optim/adagrad.py: rate is lr / (1 + (step-1)*lr_decay)
	Adagrad = updating("adagrad", "p sum", "sign decay rate eps",
		"d = sign*g + decay*p",
		"sum = sum + d*d",
		"p = p - rate*d/(sqrt(sum)+eps)")

	// torch/optim/adamax.py: rate is lr / (1 - beta1^step)
	Adamax = updating("adamax", "p m norm", "sign decay rate beta1 beta2 eps",
		"d = sign*g + decay*p",
		"m = m + (1-beta1)*(d-m)",
		"norm = max(beta2*norm, abs(d)+eps)",
		"p = p - rate*m/norm")

	// torch/optim/asgd.py: eta is the step size and mu the weight of the average that
	// the step before has left
	ASGD = updating("asgd", "p ax", "sign decay lambd eta mu",
		"d = sign*g + decay*p",
		"p = p*(1-lambd*eta) - eta*d",
		"ax = ax + mu*(p-ax)")

	// torch/optim/nadam.py: now and next are the step sizes of the gradient and of the
	// moment, correction is 1 - beta2^step
	NAdam = updating("nadam", "p m v", "sign decay shrink beta1 beta2 now next correction eps",
		"p = p*shrink",
		"d = sign*g + decay*p",
		"m = m + (1-beta1)*(d-m)",
		"v = beta2*v + (1-beta2)*d*d",
		"denom = sqrt(v/correction) + eps",
		"p = p - now*d/denom - next*m/denom")

	// torch/optim/radam.py: plain is the step size where the variance is intractable,
	// else 0, and adaptive the one where it is not
	RAdam = updating("radam", "p m v", "sign decay shrink beta1 beta2 plain adaptive eps",
		"p = p*shrink",
		"d = sign*g + decay*p",
		"m = m + (1-beta1)*(d-m)",
		"v = beta2*v + (1-beta2)*d*d",
		"p = p - plain*m",
		"when adaptive: p = p - adaptive*m/(sqrt(v)+eps)")

	// torch/optim/rmsprop.py
	RMSprop = updating("rmsprop", "p square buf? mean?", "sign decay lr alpha eps momentum",
		"d = sign*g + decay*p",
		"square = alpha*square + (1-alpha)*d*d",
		"variance = square",
		"when mean: mean = mean + (1-alpha)*(d-mean)",
		"when mean: variance = square - mean*mean",
		"d = d/(sqrt(variance)+eps)",
		"when buf: buf = momentum*buf + d",
		"when buf: d = buf",
		"p = p - lr*d")

	// torch/optim/rprop.py
	Rprop = updating("rprop", "p before size", "sign less more least most",
		"d = sign*g",
		"change = d*before",
		"size = min(max(size*choose(change, more, less, 1), least), most)",
		"d = choose(change, d, 0, d)",
		"before = d",
		"p = p - choose(d, size, 0-size, 0)")

	// lion_pytorch/lion_pytorch.py: update_fn; shrink is 1 - lr*weight_decay
	Lion = updating("lion", "p m", "lr shrink beta1 beta2",
		"p = p*shrink",
		"p = p - lr*sign(beta1*m + (1-beta1)*g)",
		"m = beta2*m + (1-beta2)*g")

	// torch.lerp
	Lerp = updating("lerp", "p", "weight", "p = p + weight*(g-p)")
)
