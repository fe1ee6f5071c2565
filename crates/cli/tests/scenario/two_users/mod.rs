//! Root and another user of the same machine: root's commands in a directory of mode 1777 in which the other user has
//! laid traps, before the command or while it runs. Needs root. The threads of the other user run with its credentials.

mod arena;
mod attacker;
mod check;
mod commands;
mod lurker;
mod product;
mod races;
mod rows;
mod settings;
mod sockets;
mod swaps;
mod traps;
mod victim;
