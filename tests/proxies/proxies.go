// Package proxies tests the node behind the reverse proxies whose example configurations are in deploy.
package proxies
