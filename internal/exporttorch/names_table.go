package exporttorch

import "strings"

func set(names string) map[string]bool {
	out := map[string]bool{}
	for _, n := range strings.Fields(names) {
		out[n] = true
	}
	return out
}

// keywords are Python's (keyword.kwlist; the soft ones, match, case, type and _,
// may be names).
var keywords = set(`
False None True and as assert async await break class continue def del elif else except finally for from global if import in is
lambda nonlocal not or pass raise return try while with yield
`)

// builtins are dir(builtins) of CPython 3.11 and 3.13 together.
var builtins = set(`
ArithmeticError AssertionError AttributeError BaseException BaseExceptionGroup BlockingIOError BrokenPipeError BufferError
BytesWarning ChildProcessError ConnectionAbortedError ConnectionError ConnectionRefusedError ConnectionResetError
DeprecationWarning EOFError Ellipsis EncodingWarning EnvironmentError Exception ExceptionGroup FileExistsError FileNotFoundError
FloatingPointError FutureWarning GeneratorExit IOError ImportError ImportWarning IndentationError IndexError InterruptedError
IsADirectoryError KeyError KeyboardInterrupt LookupError MemoryError ModuleNotFoundError NameError NotADirectoryError
NotImplemented NotImplementedError OSError OverflowError PendingDeprecationWarning PermissionError ProcessLookupError
PythonFinalizationError RecursionError ReferenceError ResourceWarning RuntimeError RuntimeWarning StopAsyncIteration StopIteration
SyntaxError SyntaxWarning SystemError SystemExit TabError TimeoutError TypeError UnboundLocalError UnicodeDecodeError
UnicodeEncodeError UnicodeError UnicodeTranslateError UnicodeWarning UserWarning ValueError Warning ZeroDivisionError
_IncompleteInputError abs aiter all anext any ascii bin bool breakpoint bytearray bytes callable chr classmethod compile complex
copyright credits delattr dict dir divmod enumerate eval exec exit filter float format frozenset getattr globals hasattr hash help
hex id input int isinstance issubclass iter len license list locals map max memoryview min next object oct open ord pow print
property quit range repr reversed round set setattr slice sorted staticmethod str sum super tuple type vars zip
`)

// shardedAttributes are what fully_shard adds to modules: dir(FSDPModule) of
// PyTorch 2.6.
var shardedAttributes = set(`
_get_fsdp_state _set_unshard_async_op reshard set_is_last_backward set_modules_to_backward_prefetch set_modules_to_forward_prefetch
set_post_optim_event set_reduce_scatter_divide_factor set_requires_all_reduce set_requires_gradient_sync set_reshard_after_backward
set_unshard_in_backward unshard
`)

// contextAttributes are what torch.autograd.Function has and the context of its
// functions, of PyTorch 2.6.
var contextAttributes = set(`
_autograd_function_id _backward_cls _compiled_autograd_backward_state _compiled_autograd_key _compiled_autograd_should_lift
_forward_cls _get_compiled_autograd_symints _input_metadata _is_compiled_autograd_tracing _materialize_non_diff_grads
_raw_saved_tensors _register_hook _register_hook_dict _sequence_nr _set_sequence_nr apply apply_jvp backward dirty_tensors forward
generate_vmap_rule jvp mark_dirty mark_non_differentiable mark_shared_storage materialize_grads maybe_clear_saved_tensors metadata
name needs_input_grad next_functions non_differentiable register_hook register_prehook requires_grad save_for_backward
save_for_forward saved_for_forward saved_tensors saved_variables set_materialize_grads setup_context to_save vjp vmap
`)
