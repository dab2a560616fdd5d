// Package agents runs agents of others against a scripted model server: codex-acp and opencode, which tests/modules installs
// from npm, as package presets configures them.
//
// The tests of agents_test.go use the Agent Client Protocol directly, and show that each agent does as presets says. The agents find
// nothing but the model server: the proxy in their environment fails the test if an agent looks for anything else.
//
// The tests of node_test.go have a runner run turns of the same agents in the isolated computer of a node, through the gateway.
// They need root.
package agents
