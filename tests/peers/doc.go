// Package peers measures the product beside servers that do similar work, in one process and under the same load. It is
// a module of its own, so that their modules are none of the product's.
package peers
