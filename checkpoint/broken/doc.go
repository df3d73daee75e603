// Package broken can break the promises that matter most, one at a time, in a
// program that is built with the tag broken: so it is shown that the torture
// (cmd/torture) notices each. In any other program nothing of it is left: all
// of these are constants, and false.
package broken
