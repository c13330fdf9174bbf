// A CUDA driver for tests, as a shared library: memory is the machine's own, and
// launches run the kernels of ../kernels on fibers. Environment variables, read
// by cuInit, say what it shall do:
//
//	MEMPLAN_EMULATOR_MEMORY        bytes of the device (64 MiB)
//	MEMPLAN_EMULATOR_SEED          of the order of threads
//	MEMPLAN_EMULATOR_FAIL_ALLOC    the n-th allocation finds no memory
//	MEMPLAN_EMULATOR_FAIL_LAUNCH   the n-th launch fails
//	MEMPLAN_EMULATOR_VANISH        from the n-th call on, all fail
//	MEMPLAN_EMULATOR_DEVICES       how many devices there are (1)
//	MEMPLAN_EMULATOR_CAPABILITY    the first part of their compute capability (7)
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <map>
#include <utility>

#include "emulator.h"
extern "C" {
#include "../driver/cuda.h"
}
#include "../kernels/module.cu"

Emulated emulated;

namespace {

enum { STACK = 128 << 10, MOST_THREADS = 256 };

uint64_t state;
uint64_t random_bits() { // splitmix64
	uint64_t z = state += 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

// Fibers live on, and run the body of one block after the other.
struct Fiber {
	jmp_buf at;
	bool made = false, done = false;
	char *stack = nullptr;
};
Fiber fibers[MOST_THREADS];
jmp_buf scheduler;
ucontext_t start;
int current;
void (*call)(void **);
void **parameters;
bool diverged;

void run_fiber() {
	int self = current;
	for (;;) {
		call(parameters);
		fibers[self].done = true;
		if (!_setjmp(fibers[self].at)) _longjmp(scheduler, 1);
	}
}

void resume(int i) {
	current = i;
	emulated.thread = i;
	if (_setjmp(scheduler)) return;
	Fiber &f = fibers[i];
	if (f.made) _longjmp(f.at, 1);
	f.made = true;
	f.stack = (char *)malloc(STACK);
	getcontext(&start);
	start.uc_stack.ss_sp = f.stack;
	start.uc_stack.ss_size = STACK - i * 448 % (STACK / 4); // tops that do not compete for one line of the cache
	start.uc_link = nullptr;
	makecontext(&start, run_fiber, 0);
	setcontext(&start);
}

void run_block(int threads) {
	for (int i = 0; i < threads; i++) fibers[i].done = false;
	for (int live = threads; live > 0;) {
		// Every thread once, from a random one on by random steps, which are odd.
		int waiting = 0, at = (int)(random_bits() % MOST_THREADS), by = (int)(random_bits() % MOST_THREADS) | 1;
		for (int n = 0; n < MOST_THREADS; n++) {
			int i = (at + n * by) % MOST_THREADS;
			if (i >= threads || fibers[i].done) continue;
			resume(i);
			waiting += !fibers[i].done;
		}
		if (waiting > 0 && waiting != live) diverged = true; // a barrier that some threads never reach
		live = waiting;
	}
}

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
long calls, allocations, launches, vanish, fail_alloc, fail_launch, devices;
size_t total, used;
std::map<CUdeviceptr, size_t> blocks;
CUresult pending; // of an earlier launch

long setting(const char *name, long otherwise) {
	const char *v = getenv(name);
	return v && *v ? atol(v) : otherwise;
}

// Each call comes by here.
CUresult enter() {
	calls++;
	if (vanish && calls >= vanish) return CUDA_ERROR_UNKNOWN;
	return pending;
}

// inside reports whether n bytes at a lie in one block.
bool inside(CUdeviceptr a, size_t n) {
	auto b = blocks.upper_bound(a);
	if (b == blocks.begin()) return false;
	--b;
	return a + n <= b->first + b->second;
}

} // namespace

// Where a thread waits for the others of its block.
void emulated_barrier() {
	int self = current;
	if (!_setjmp(fibers[self].at)) _longjmp(scheduler, 1);
	emulated.thread = self;
}

#define CALL if (CUresult r = enter()) return r

extern "C" {
CUresult cuInit(unsigned) {
	state = setting("MEMPLAN_EMULATOR_SEED", 1);
	total = setting("MEMPLAN_EMULATOR_MEMORY", 64 << 20);
	fail_alloc = setting("MEMPLAN_EMULATOR_FAIL_ALLOC", 0);
	fail_launch = setting("MEMPLAN_EMULATOR_FAIL_LAUNCH", 0);
	vanish = setting("MEMPLAN_EMULATOR_VANISH", 0);
	devices = setting("MEMPLAN_EMULATOR_DEVICES", 1);
	calls = allocations = launches = 0;
	pending = CUDA_SUCCESS;
	return CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int *v) { *v = 12040; return CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int *n) { CALL; *n = (int)devices; return CUDA_SUCCESS; }
CUresult cuDeviceGetName(char *s, int n, CUdevice) { CALL; snprintf(s, n, "emulated GPU"); return CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice) {
	CALL;
	*v = a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? (int)setting("MEMPLAN_EMULATOR_CAPABILITY", 7) : a == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? 1 : 0;
	return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice) { CALL; *c = (CUcontext)1; return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { CALL; return CUDA_SUCCESS; }
CUresult cuCtxCreate_v2(CUcontext *c, unsigned, CUdevice) { CALL; *c = (CUcontext)1; return CUDA_SUCCESS; }
CUresult cuCtxDestroy_v2(CUcontext) { CALL; return CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext) { CALL; return CUDA_SUCCESS; }
CUresult cuCtxSynchronize(void) { CALL; return CUDA_SUCCESS; }
CUresult cuMemGetInfo_v2(size_t *f, size_t *t) { CALL; *f = total - used; *t = total; return CUDA_SUCCESS; }
CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t n) {
	CALL;
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
	CALL;
	auto b = blocks.find(p);
	if (b == blocks.end()) return CUDA_ERROR_INVALID_VALUE;
	used -= b->second;
	free((void *)p);
	blocks.erase(b);
	return CUDA_SUCCESS;
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr d, const void *s, size_t n) { CALL; if (!inside(d, n)) return CUDA_ERROR_INVALID_VALUE; memcpy((void *)d, s, n); return CUDA_SUCCESS; }
CUresult cuMemcpyDtoH_v2(void *d, CUdeviceptr s, size_t n) { CALL; if (!inside(s, n)) return CUDA_ERROR_INVALID_VALUE; memcpy(d, (void *)s, n); return CUDA_SUCCESS; }
CUresult cuMemsetD8_v2(CUdeviceptr d, unsigned char b, size_t n) { CALL; if (!inside(d, n)) return CUDA_ERROR_INVALID_VALUE; memset((void *)d, b, n); return CUDA_SUCCESS; }
CUresult cuModuleLoadData(CUmodule *m, const void *ptx) {
	CALL;
	if (strstr((const char *)ptx, ".version") == nullptr) return CUDA_ERROR_INVALID_PTX;
	*m = (CUmodule)1;
	return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule) { CALL; return CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction *f, CUmodule, const char *name) {
	CALL;
	for (const Entry &e : entries)
		if (!strcmp(e.name, name)) {
			*f = (CUfunction)&e;
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_NOT_FOUND;
}
CUresult cuEventCreate(CUevent *e, unsigned) { CALL; *e = (CUevent)1; return CUDA_SUCCESS; }
CUresult cuEventRecord(CUevent, CUstream) { CALL; return CUDA_SUCCESS; }
CUresult cuEventSynchronize(CUevent) { CALL; return CUDA_SUCCESS; }
CUresult cuEventElapsedTime(float *ms, CUevent, CUevent) { CALL; *ms = 1; return CUDA_SUCCESS; }
CUresult cuEventDestroy_v2(CUevent) { CALL; return CUDA_SUCCESS; }

// A launch that fails shows at the next call, as those that fault on a GPU do.
CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned, CUstream, void **p, void **) {
	CALL;
	launches++;
	if (gz != 1 || by != 1 || bz != 1 || gx == 0 || gy == 0 || gy > 65535 || bx == 0 || bx > MOST_THREADS) return CUDA_ERROR_INVALID_VALUE;
	if (launches == fail_launch) {
		pending = CUDA_ERROR_ILLEGAL_ADDRESS;
		return CUDA_SUCCESS;
	}
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
	return diverged ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS;
}
}
