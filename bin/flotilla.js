#!/usr/bin/env node
// Kept to syntax that Node 12 can parse, so that an old Node gets a sentence and not a stack trace.
import { spawn } from "child_process";
import { existsSync } from "fs";
import module from "module";
import { fileURLToPath } from "url";

var needed = [22, 18];
var found = process.versions.node.split(".").map(Number);

if (found[0] < needed[0] || (found[0] === needed[0] && found[1] < needed[1])) {
  console.error(
    "flotilla needs Node " +
      needed.join(".") +
      " or newer, and this is Node " +
      process.versions.node +
      " (" +
      process.execPath +
      ").\n" +
      "Install a newer Node, or add one to this project and run flotilla through it:\n\n" +
      "  npm install --save-dev node@24\n" +
      "  npx flotilla " +
      process.argv.slice(2).join(" "),
  );
  process.exitCode = 1;
} else {
  run();
}

// Node 22 warns that its SQLite is experimental, once per thread; nobody here can act on that. And a
// config in a package without a `type` is loaded as well as any other.
var emitWarning = process.emitWarning;
process.emitWarning = function (warning, type) {
  if (type === "ExperimentalWarning" && /SQLite/.test(String(warning))) return;
  if (type && type.code === "MODULE_TYPELESS_PACKAGE_JSON") return;
  emitWarning.apply(process, arguments);
};

function run() {
  var source = fileURLToPath(new URL("../src/cli/main.ts", import.meta.url));
  // Only a checkout has the source, and a build that lies there may be older.
  if (existsSync(source)) {
    runSource(source);
  } else {
    // Most of a short command's time is compiling, which needs doing once. Where nothing can be kept,
    // this says so in what it returns, and nobody has to care.
    module.enableCompileCache();
    void import("../dist/cli.js");
  }
}

// Only a flag on the command line can point imports at the source.
function runSource(source) {
  var args = ["--conditions=flotilla:source", source].concat(process.argv.slice(2));
  var child = spawn(process.execPath, args, { stdio: "inherit" });

  function forward(signal) {
    // A terminal sends Ctrl-C to the child as well, and a second one would read as impatience.
    if (signal === "SIGINT" && process.stdin.isTTY) return;
    child.kill(signal);
  }
  process.on("SIGINT", forward);
  process.on("SIGTERM", forward);
  process.on("SIGHUP", forward);

  child.on("close", function (code, signal) {
    process.removeListener("SIGINT", forward);
    process.removeListener("SIGTERM", forward);
    process.removeListener("SIGHUP", forward);
    if (signal) process.kill(process.pid, signal);
    else process.exitCode = code;
  });
}
