// Package proxies tests a node behind each reverse proxy that has an example configuration in the folder deploy.
package proxies
