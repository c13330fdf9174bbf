// A CUDA driver for tests, as a shared library: memory is the machine's own, and
// launches run the kernels of ../kernels on fibers. Environment variables, read
// by cuInit, say what it shall do:
//
//	MEMPLAN_EMULATOR_MEMORY        bytes of the device (64 MiB)
//	MEMPLAN_EMULATOR_SEED          of the order of threads
//	MEMPLAN_EMULATOR_ADDRESSES     bytes of addresses that can be reserved (1 TiB)
//	MEMPLAN_EMULATOR_VIRTUAL       whether it maps memory (1)
//	MEMPLAN_EMULATOR_FAIL_ALLOC    the n-th allocation, or creation of memory to map, finds none
//	MEMPLAN_EMULATOR_FAIL_MAP      the n-th mapping, or permission to use one, fails
//	MEMPLAN_EMULATOR_FAIL_LAUNCH   the n-th launch fails
//	MEMPLAN_EMULATOR_VANISH        from the n-th call on, all fail
//	MEMPLAN_EMULATOR_DEVICES       how many devices there are (1)
//	MEMPLAN_EMULATOR_CAPABILITY    the first part of their compute capability (7)
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "fibers.h"
extern "C" {
#include "../driver/cuda.h"
}
#define MODULE_80 // its kernels, too
#include "../kernels/module.cu"

namespace {

extern "C" char __start_emulator_shared[], __stop_emulator_shared[];

// Kernels by name.
template <class... A, size_t... I> void unpack(void (*f)(A...), void **p, std::index_sequence<I...>) { f(*(A *)p[I]...); }
template <class... A> void unpacked(void (*f)(A...), void **p) { unpack(f, p, std::index_sequence_for<A...>()); }
struct Entry {
	const char *name;
	void (*call)(void **);
};
const Entry entries[] = {
#define ENTRY(name) {#name, [](void **p) { unpacked(name, p); }},
#include "entries.h"
#undef ENTRY
};

// What goes wrong, and what is held.
long calls, allocations, launches, mappings, vanish, fail_alloc, fail_launch, fail_map, devices;
size_t total, used, addresses;
std::map<CUdeviceptr, size_t> blocks;
std::map<CUfunction, int> allowed; // shared memory beyond 48 KiB
CUresult pending; // of an earlier launch

long setting(const char *name, long otherwise) {
	const char *v = getenv(name);
	return v && *v ? atol(v) : otherwise;
}

// Contexts: that of the device, number 1, lives while somebody retains it. A thread
// has a current one.
long retained;
uintptr_t last_context = 1;
std::set<CUcontext> contexts;
thread_local CUcontext context;

void lose_mappings();

// What a device held that vanished, or whose kernel failed, is lost.
void lose_all() {
	for (auto &b : blocks) free((void *)b.first);
	blocks.clear();
	lose_mappings();
	contexts.clear();
	used = retained = 0;
}

// Each call comes by here; one that needs a context, with it. They come one at a
// time, from whatever thread.
std::mutex one_at_a_time;
CUresult enter(bool with_context) {
	calls++;
	if (vanish && calls >= vanish) return CUDA_ERROR_UNKNOWN;
	if (with_context && !contexts.count(context)) return context ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
	return pending;
}

} // namespace

#define ENTER(with_context) \
	std::lock_guard<std::mutex> lock(one_at_a_time); \
	if (CUresult r = enter(with_context)) return r
#define CALL ENTER(false)
#define CALL_IN_CONTEXT ENTER(true)

#include "virtual.h"

extern "C" {
CUresult cuInit(unsigned) {
	std::lock_guard<std::mutex> lock(one_at_a_time);
	if (vanish || pending) lose_all();
	state = setting("MEMPLAN_EMULATOR_SEED", 1);
	total = setting("MEMPLAN_EMULATOR_MEMORY", 64 << 20);
	addresses = setting("MEMPLAN_EMULATOR_ADDRESSES", 1l << 40);
	fail_map = setting("MEMPLAN_EMULATOR_FAIL_MAP", 0);
	fail_alloc = setting("MEMPLAN_EMULATOR_FAIL_ALLOC", 0);
	fail_launch = setting("MEMPLAN_EMULATOR_FAIL_LAUNCH", 0);
	vanish = setting("MEMPLAN_EMULATOR_VANISH", 0);
	devices = setting("MEMPLAN_EMULATOR_DEVICES", 1);
	calls = allocations = launches = mappings = 0;
	pending = CUDA_SUCCESS;
	return CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int *v) { *v = 12040; return CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int *n) { CALL; *n = (int)devices; return CUDA_SUCCESS; }
CUresult cuDeviceGetName(char *s, int n, CUdevice) { CALL; snprintf(s, n, "emulated GPU"); return CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice) {
	CALL;
	*v = a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? (int)setting("MEMPLAN_EMULATOR_CAPABILITY", 7) : a == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? 1 : 0;
	if (a == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) *v = (int)setting("MEMPLAN_EMULATOR_VIRTUAL", 1);
	return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice) {
	CALL;
	retained++;
	contexts.insert(*c = (CUcontext)1);
	return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) {
	CALL;
	if (retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
	if (--retained == 0) contexts.erase((CUcontext)1);
	return CUDA_SUCCESS;
}
CUresult cuCtxCreate_v2(CUcontext *c, unsigned, CUdevice) {
	CALL;
	contexts.insert(context = *c = (CUcontext)++last_context);
	return CUDA_SUCCESS;
}
CUresult cuCtxDestroy_v2(CUcontext c) {
	CALL;
	if (contexts.erase(c) == 0) return CUDA_ERROR_INVALID_CONTEXT;
	if (context == c) context = nullptr;
	return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext c) {
	CALL;
	if (c && !contexts.count(c)) return CUDA_ERROR_INVALID_CONTEXT;
	context = c;
	return CUDA_SUCCESS;
}
CUresult cuCtxSynchronize(void) { CALL_IN_CONTEXT; return CUDA_SUCCESS; }
CUresult cuMemGetInfo_v2(size_t *f, size_t *t) { CALL_IN_CONTEXT; *f = total - used; *t = total; return CUDA_SUCCESS; }
CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t n) {
	CALL_IN_CONTEXT;
	allocations++;
	if (n == 0) return CUDA_ERROR_INVALID_VALUE;
	void *m = allocations == fail_alloc || used + n > total ? nullptr : aligned_alloc(512, (n + 511) / 512 * 512);
	if (m == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
	memset(m, 0xff, n);
	blocks[*p = (CUdeviceptr)m] = n;
	used += n;
	return CUDA_SUCCESS;
}
CUresult cuMemFree_v2(CUdeviceptr p) {
	CALL_IN_CONTEXT;
	auto b = blocks.find(p);
	if (b == blocks.end()) return CUDA_ERROR_INVALID_VALUE;
	used -= b->second;
	free((void *)p);
	blocks.erase(b);
	return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr d, const void *s, size_t n) { CALL_IN_CONTEXT; if (!inside(d, n)) return CUDA_ERROR_INVALID_VALUE; memcpy((void *)d, s, n); return CUDA_SUCCESS; }
CUresult cuMemcpyDtoH_v2(void *d, CUdeviceptr s, size_t n) { CALL_IN_CONTEXT; if (!inside(s, n)) return CUDA_ERROR_INVALID_VALUE; memcpy(d, (void *)s, n); return CUDA_SUCCESS; }
CUresult cuMemsetD8_v2(CUdeviceptr d, unsigned char b, size_t n) { CALL_IN_CONTEXT; if (!inside(d, n)) return CUDA_ERROR_INVALID_VALUE; memset((void *)d, b, n); return CUDA_SUCCESS; }
CUresult cuModuleLoadDataEx(CUmodule *m, const void *ptx, unsigned n, CUjit_option *options, void **values) {
	CALL_IN_CONTEXT;
	if (strstr((const char *)ptx, ".version") == nullptr) {
		for (unsigned i = 0; i < n; i++)
			if (options[i] == CU_JIT_ERROR_LOG_BUFFER) strcpy((char *)values[i], "ptxas fatal : Missing .version directive\n");
		return CUDA_ERROR_INVALID_PTX;
	}
	*m = (CUmodule)strdup((const char *)ptx);
	return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule m) { CALL_IN_CONTEXT; free(m); return CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name) {
	CALL_IN_CONTEXT;
	char entry[256];
	snprintf(entry, sizeof entry, ".entry %s(", name);
	if (strstr((const char *)m, entry) == nullptr) return CUDA_ERROR_NOT_FOUND;
	for (const Entry &e : entries)
		if (!strcmp(e.name, name)) {
			*f = (CUfunction)&e;
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_NOT_FOUND;
}
CUresult cuFuncGetAttribute(int *v, CUfunction_attribute, CUfunction) { CALL; *v = 0; return CUDA_SUCCESS; }
CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int v) {
	CALL_IN_CONTEXT;
	if (a != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || v < 0 || v > (int)sizeof emulated_dynamic) return CUDA_ERROR_INVALID_VALUE;
	allowed[f] = v;
	return CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent *e, unsigned) { CALL_IN_CONTEXT; *e = (CUevent)1; return CUDA_SUCCESS; }
CUresult cuEventRecord(CUevent, CUstream) { CALL_IN_CONTEXT; return CUDA_SUCCESS; }
CUresult cuEventSynchronize(CUevent) { CALL_IN_CONTEXT; return CUDA_SUCCESS; }
CUresult cuEventElapsedTime(float *ms, CUevent, CUevent) { CALL_IN_CONTEXT; *ms = 1; return CUDA_SUCCESS; }
CUresult cuEventDestroy_v2(CUevent) { CALL_IN_CONTEXT; return CUDA_SUCCESS; }

// A launch that fails shows at the next call, as those that fault on a GPU do.
CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream, void **p, void **) {
	CALL_IN_CONTEXT;
	launches++;
	if (gz != 1 || by != 1 || bz != 1 || gx == 0 || gy == 0 || gy > 65535 || bx == 0 || bx > MOST_THREADS) return CUDA_ERROR_INVALID_VALUE;
	if (launches == fail_launch) {
		pending = CUDA_ERROR_ILLEGAL_ADDRESS;
		return CUDA_SUCCESS;
	}
	if (shared > (allowed.count(f) ? (unsigned)allowed[f] : 48 << 10)) return CUDA_ERROR_INVALID_VALUE;
	emulated.dynamic = shared;
	emulated.beyond = false;
	call = ((const Entry *)f)->call;
	parameters = p;
	diverged = false;
	int poisoned = 4; // blocks; later ones find what these left
	for (unsigned y = 0; y < gy; y++)
		for (unsigned x = 0; x < gx; x++) {
			emulated.block_x = x;
			emulated.block_y = y;
			if (poisoned-- > 0) memset(__start_emulator_shared, (int)(random_bits() | 0x80), __stop_emulator_shared - __start_emulator_shared);
			run_block((int)bx);
		}
	return diverged || emulated.beyond ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS;
}
}
