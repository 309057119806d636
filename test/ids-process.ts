import process from "node:process";
import { systemClock } from "../src/base/clock.ts";
import { uuidv7 } from "../src/base/ids.ts";
import { systemRandom } from "../src/base/random.ts";

/** Makes as many ids as it is told, as any process would, and prints them. */
const ids = uuidv7(systemClock, systemRandom);
const made = Array.from({ length: Number(process.argv[2]) }, () => ids.next());
process.stdout.write(made.join("\n"));
