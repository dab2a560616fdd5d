// Package browser tests the pages for people in Chromium, with its scripts switched off: pages.mjs goes through them as
// people do and holds each against the rules of axe-core. It leaves pictures of them where PICTURES names a folder.
package browser
