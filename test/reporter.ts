import { writeSync } from "node:fs";
import type { Reporter, SerializedError, TestModule, TestRunEndReason } from "vitest/node";

/**
 * Ends a run with one line, `N passed, N failed`, for people and scripts that read only the last.
 *
 * Whatever broke without being a test counts as failed too: a file that could not be loaded, a
 * hook, an unhandled error, a run that found no tests. So `0 failed` always means exit code 0.
 */
export default class LastLine implements Reporter {
  #passed = 0;
  #failed = 0;

  onInit(): void {
    // The default reporter and vitest's own shutdown may print until the very end.
    process.once("exit", (code) => {
      if (code !== 0 && this.#failed === 0) this.#failed = 1;
      if (this.#failed > 0) process.exitCode = code === 0 ? 1 : code;
      writeSync(1, `${this.#passed} passed, ${this.#failed} failed\n`);
    });
  }

  onTestRunEnd(
    modules: readonly TestModule[],
    unhandledErrors: readonly SerializedError[],
    reason: TestRunEndReason,
  ): void {
    this.#passed = 0;
    this.#failed = unhandledErrors.length;
    for (const module of modules) {
      this.#failed += module.errors().length;
      for (const suite of module.children.allSuites()) this.#failed += suite.errors().length;
      for (const test of module.children.allTests()) {
        const { state } = test.result();
        if (state === "passed") this.#passed += 1;
        // A test still pending at the end lost its process on the way.
        if (state === "failed" || state === "pending") this.#failed += 1;
      }
    }
    if (reason !== "passed" && this.#failed === 0) this.#failed = 1;
  }
}
