// Package peers measures the product beside servers that do similar work, in one process and under the same load. It is
// a module of its own, so that their modules are none of the product's.
//
// Mercure is licensed under the GNU Affero General Public License, version 3. Only this package links it, for measuring;
// no program that is built from this module may be distributed or offered as a service, and nothing outside of tests/peers
// may import it. NATS is under Apache 2.0.
package peers
