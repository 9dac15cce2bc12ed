/* Preloaded into User-Mode Linux. It keeps 2,696 bytes of the registers of each of its processes, and takes them back
 * by PTRACE_SETREGSET. On a processor whose registers are larger (AMX) the machine's kernel refuses that: it wants all of
 * them or none. What is missing is what the process has at the moment, and nothing in the lab uses that part.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Not on the stack: those of its kernel are small. */
static unsigned char whole[64 << 10] __attribute__((aligned(64)));

static long set_part(long pid, struct iovec *part)
{
	struct iovec all = { whole, sizeof(whole) };
	sigset_t every, before;
	long answer;

	/* A signal may have it switch to another process, which comes here too. */
	sigfillset(&every);
	sigprocmask(SIG_SETMASK, &every, &before);
	answer = syscall(SYS_ptrace, PTRACE_GETREGSET, pid, NT_X86_XSTATE, &all);
	if (answer == 0 && all.iov_len > part->iov_len) {
		memcpy(whole, part->iov_base, part->iov_len);
		answer = syscall(SYS_ptrace, PTRACE_SETREGSET, pid, NT_X86_XSTATE, &all);
	} else {
		answer = syscall(SYS_ptrace, PTRACE_SETREGSET, pid, NT_X86_XSTATE, part);
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	return answer;
}

long ptrace(enum __ptrace_request request, ...)
{
	va_list rest;
	long pid, address, answer, word;
	void *data;

	va_start(rest, request);
	pid = va_arg(rest, int);
	address = va_arg(rest, long);
	data = va_arg(rest, void *);
	va_end(rest);
	if (request == PTRACE_SETREGSET && address == NT_X86_XSTATE)
		return set_part(pid, data);
	if (request != PTRACE_PEEKTEXT && request != PTRACE_PEEKDATA && request != PTRACE_PEEKUSER)
		return syscall(SYS_ptrace, request, pid, address, data);
	answer = syscall(SYS_ptrace, request, pid, address, &word);
	return answer < 0 ? answer : word;
}
