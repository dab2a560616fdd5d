// Package browser tests the web pages in Chromium, with JavaScript disabled. pages.mjs uses them as a person does and
// checks each with axe-core. It stores screenshots in the folder that the environment variable PICTURES names.
package browser
