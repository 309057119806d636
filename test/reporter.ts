import { writeSync } from "node:fs";
import { stripVTControlCharacters } from "node:util";
import type { Reporter, SerializedError, TestModule, TestRunEndReason } from "vitest/node";

const namedFailures = 50;
const messageLength = 200;

/**
 * Ends a run with a line for each failure and one of counts, `N passed, N failed`, for people and scripts
 * that read only the last.
 *
 * Whatever broke without being a test counts as failed too: a file that could not be loaded, a
 * hook, an unhandled error, a run that found no tests. So `0 failed` always means exit code 0.
 */
export default class LastLine implements Reporter {
  #passed = 0;
  #failed = 0;
  readonly #failures: string[] = [];

  onInit(): void {
    // The default reporter and vitest's own shutdown may print until the very end.
    process.once("exit", (code) => {
      if (code !== 0 && this.#failed === 0) this.#failed = 1;
      if (this.#failed > 0) process.exitCode = code === 0 ? 1 : code;
      for (const failure of this.#failures.slice(0, namedFailures))
        writeSync(1, `failed: ${failure}\n`);
      writeSync(1, `${this.#passed} passed, ${this.#failed} failed\n`);
    });
  }

  onTestRunEnd(
    modules: readonly TestModule[],
    unhandledErrors: readonly SerializedError[],
    reason: TestRunEndReason,
  ): void {
    this.#passed = 0;
    this.#failures.length = 0;
    for (const module of modules) {
      const file = module.relativeModuleId;
      this.#add(file, module.errors());
      for (const suite of module.children.allSuites())
        this.#add(`${file} > ${suite.fullName}`, suite.errors());
      for (const test of module.children.allTests()) {
        const { state, errors } = test.result();
        if (state === "passed") this.#passed += 1;
        const [error = { message: "it failed" }] = errors ?? [];
        if (state === "failed") this.#add(`${file} > ${test.fullName}`, [error]);
        // A test still pending at the end lost its process on the way.
        if (state === "pending")
          this.#add(`${file} > ${test.fullName}`, [{ message: "it didn't end" }]);
      }
    }
    this.#add("outside of a test", unhandledErrors);
    this.#failed = this.#failures.length;
    if (reason !== "passed" && this.#failed === 0) this.#failed = 1;
  }

  #add(where: string, errors: readonly SerializedError[]): void {
    for (const { message } of errors) {
      const [first = ""] = stripVTControlCharacters(message).split("\n");
      this.#failures.push(`${where}: ${first.slice(0, messageLength)}`);
    }
  }
}
