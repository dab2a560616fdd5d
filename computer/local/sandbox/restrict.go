package sandbox

// RestrictCalls restricts the system calls of the calling thread and of the program that it executes, as in the processes of a
// computer: among others, it cannot give files the bits set-user-id and set-group-id, or another project. The caller has locked the
// thread to its goroutine, and has set no_new_privs.
func RestrictCalls() error { return restrictCalls() }
