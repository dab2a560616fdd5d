// Package apps runs apps that others' toolchains serve, in the isolated computer of a node behind its edge: the development server of
// Vite, which tests/modules installs from npm, and a Go program, which the app's install command builds.
//
// A test is a visitor of a private app: it launches the app, gets the cookie of a visit, and then sends the requests of a browser. All
// names of the edge lead to the listener of the test, because few machines resolve names below localhost without a browser.
//
// Computers see the system's folders of the machine. Node.js and the Go toolchain must be in one of them, below /usr, /opt or /bin.
// Without isolation, Node.js or the npm packages, a test is skipped, and with CI=true it fails.
package apps
