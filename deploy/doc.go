// Package deploy holds no code: what is needed to run Towpath lies here as
// files, and the tests of this package hold them to the program.
package deploy
