/**
 * Runs the suites of stores on a Postgres server that is named, in schemas of their own, and says what it
 * has shown. The role needs the right to create schemas in the database, and nothing else.
 *
 *     npm run test:store -- <url> [files]
 */
import process from "node:process";
import { messageOf } from "../src/base/errors.ts";
import { proveStore } from "./prove-store.ts";

const [url, ...files] = process.argv.slice(2);
if (url === undefined) {
  console.error("name a server: npm run test:store -- postgres://user@host/database");
  process.exit(2);
}
try {
  const proof = await proveStore(url, files);
  console.log(`\n${proof.facts.join("\n")}\n\n${proof.row}`);
  process.exitCode = proof.failed > 0 || proof.passed === 0 ? 1 : 0;
} catch (error) {
  console.error(messageOf(error));
  process.exitCode = 2;
}
