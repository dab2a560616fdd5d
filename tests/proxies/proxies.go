// Package proxies tests a node behind each reverse proxy for which the folder deploy has an example configuration.
package proxies
