#!/usr/bin/env node
// Starts the binary of this machine, which lies in a package of its own.
"use strict";
const { spawn } = require("node:child_process");
const { constants } = require("node:os");

const failed = 3; // docs/exit-codes.md: the command could not finish
const name = `@memplan/${process.platform}-${process.arch}`;

function binary() {
  const { optionalDependencies, repository } = require("../package.json");
  if (!(name in optionalDependencies)) {
    throw new Error(`there is no binary for ${process.platform}-${process.arch}; build it from ${repository.url}`);
  }
  try {
    return require.resolve(`${name}/bin/memplan${process.platform === "win32" ? ".exe" : ""}`);
  } catch {
    throw new Error(`the package ${name} is not installed; npm leaves it out with --omit=optional, and where node_modules come from another machine`);
  }
}

function fail(error) {
  console.error(`memplan: ${error.message}`);
  process.exit(failed);
}

try {
  const child = spawn(binary(), process.argv.slice(2), { stdio: "inherit" });
  child.on("error", fail);
  process.on("SIGINT", () => {}); // a terminal sends it to the child, too, whose exit code counts
  process.on("SIGTERM", () => child.kill("SIGTERM"));
  child.on("exit", (code, signal) => process.exit(signal ? 128 + constants.signals[signal] : code));
} catch (error) {
  fail(error);
}
