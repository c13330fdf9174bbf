//go:build cuda

/* The driver's functions without the driver's library at link time: each is a
 * jump to where its slot points, and all slots point to a function that answers
 * "not initialized" until memplan_cuda_load has opened the library. So one binary
 * runs on machines with and without a GPU, and pays nothing where it needs none. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdio.h>

#include "cuda.h"
#include "shim.h"

static CUresult not_loaded(void) { return CUDA_ERROR_NOT_INITIALIZED; }
static CUresult not_found(void) { return CUDA_ERROR_NOT_FOUND; }

/* A slot for each function. */
#define MEMPLAN_FUNCTION(name, parameters) \
	__attribute__((visibility("hidden"))) void *memplan_slot_##name = (void *)not_loaded;
#include "functions.h"
#undef MEMPLAN_FUNCTION

/* A jump through each slot. The registers of arguments stay as they are; the one
 * used is the platform's scratch register for such veneers. */
#if defined(__linux__) && defined(__x86_64__)
#define MEMPLAN_JUMP(slot) "\tmovq " slot "(%rip), %r11\n\tjmp *%r11\n"
#elif defined(__linux__) && defined(__aarch64__)
#define MEMPLAN_JUMP(slot) "\tadrp x16, " slot "\n\tldr x16, [x16, :lo12:" slot "]\n\tbr x16\n"
#else
#error "memplan's CUDA backend is for Linux on amd64 and arm64"
#endif
#define MEMPLAN_FUNCTION(name, parameters) \
	__asm__("\t.text\n\t.p2align 4\n\t.globl " #name "\n\t.hidden " #name "\n\t.type " #name ", %function\n" #name ":\n" \
		MEMPLAN_JUMP("memplan_slot_" #name) "\t.size " #name ", .-" #name "\n");
#include "functions.h"
#undef MEMPLAN_FUNCTION

static const struct {
	const char *name;
	void **slot;
} slots[] = {
#define MEMPLAN_FUNCTION(name, parameters) {#name, &memplan_slot_##name},
#include "functions.h"
#undef MEMPLAN_FUNCTION
};

/* The binding calls this before main and ends the process if it fails; the real
 * one is called by memplan_cuda_load. */
__attribute__((visibility("hidden"))) CUresult cuInit(unsigned flags) {
	(void)flags;
	return CUDA_SUCCESS;
}

int memplan_cuda_load(const char *path, char *why, size_t n, int *missing) {
	static void *library;
	if (library == NULL) {
		library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		if (library == NULL) {
			snprintf(why, n, "%s", dlerror());
			return -1;
		}
		*missing = 0;
		for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
			void *p = dlsym(library, slots[i].name);
			*missing += p == NULL;
			*slots[i].slot = p != NULL ? p : (void *)not_found;
		}
	}
	CUresult (*init)(unsigned) = (CUresult(*)(unsigned))dlsym(library, "cuInit");
	if (init == NULL) {
		snprintf(why, n, "%s has no function cuInit", path);
		return -1;
	}
	return init(0);
}
