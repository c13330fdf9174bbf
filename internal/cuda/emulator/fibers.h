// The threads of a block, one after the other: each runs on a fiber, with a stack of its
// own, and a barrier switches to the scheduler. A thread that ends leaves its fiber to the
// next one that begins, so that threads without a barrier share one stack, which the
// processor's caches have.
#pragma once

#include <stdint.h>
#include <stdlib.h>

#include "emulator.h"

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

// Fibers live on, and run one thread after the other. at is the stack of one that waits.
struct Fiber {
	void *at;
	Fiber *next; // of those that are free
};
Fiber *free_fibers;
struct Thread {
	Fiber *on; // null: it has not begun
	bool done;
};
Thread block_threads[MOST_THREADS];
void *scheduler; // its stack, while a fiber runs
int current;
void (*call)(void **);
void **parameters;
bool diverged;

// swap_stacks leaves the registers that a function must keep, and where it
// returns to, on the stack, whose place it notes in *from, and takes those that
// are on the stack `to`. The C library's setjmp and longjmp take ten times longer.
extern "C" void swap_stacks(void **from, void *to);
#if defined(__x86_64__)
enum { ENTRY = 6, FRAME = 8 };
__asm__(".text\n.p2align 4\nswap_stacks:\n"
	"push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
	"mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
	"pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");
#elif defined(__aarch64__)
enum { ENTRY = 11, FRAME = 20 };
__asm__(".text\n.p2align 4\nswap_stacks:\n"
	"sub sp, sp, #160\n"
	"stp x19, x20, [sp]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\nstp x25, x26, [sp, #48]\n"
	"stp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\n"
	"stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\nstp d14, d15, [sp, #144]\n"
	"mov x2, sp\nstr x2, [x0]\nmov sp, x1\n"
	"ldp x19, x20, [sp]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\nldp x25, x26, [sp, #48]\n"
	"ldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\n"
	"ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\nldp d12, d13, [sp, #128]\nldp d14, d15, [sp, #144]\n"
	"add sp, sp, #160\nret\n");
#else
#error "the emulator is for amd64 and arm64"
#endif

void run_fiber() {
	for (;;) {
		call(parameters);
		Thread &t = block_threads[current];
		t.done = true;
		t.on->next = free_fibers;
		free_fibers = t.on;
		swap_stacks(&t.on->at, scheduler);
	}
}

Fiber *new_fiber() { // with a stack that swap_stacks might have left, FRAME words of it
	static int made;
	void **stack = (void **)aligned_alloc(64, STACK);
	size_t top = STACK / sizeof *stack - made++ * 56 % (STACK / 4 / sizeof *stack); // that do not compete for one line of the cache
	stack += top - FRAME - FRAME % 2;
	for (int k = 0; k < FRAME; k++) stack[k] = nullptr;
	stack[ENTRY] = (void *)run_fiber;
	return new Fiber{stack, nullptr};
}

void resume(int i) {
	current = i;
	emulated.thread = i;
	Thread &t = block_threads[i];
	if (t.on == nullptr) {
		t.on = free_fibers ? free_fibers : new_fiber();
		free_fibers = t.on->next;
	}
	swap_stacks(&scheduler, t.on->at);
}

void run_block(int threads) {
	for (int i = 0; i < threads; i++) block_threads[i] = {nullptr, false};
	for (int live = threads; live > 0;) {
		// Every thread once, from a random one on by random steps, which are odd.
		int waiting = 0, at = (int)(random_bits() % MOST_THREADS), by = (int)(random_bits() % MOST_THREADS) | 1;
		for (int n = 0; n < MOST_THREADS; n++) {
			int i = (at + n * by) % MOST_THREADS;
			if (i >= threads || block_threads[i].done) continue;
			resume(i);
			waiting += !block_threads[i].done;
		}
		if (waiting > 0 && waiting != live) diverged = true; // a barrier that some threads never reach
		live = waiting;
	}
}

} // namespace

// Where a thread waits for the others of its block.
void emulated_barrier() {
	int self = current;
	swap_stacks(&block_threads[self].on->at, scheduler);
	emulated.thread = self;
}
