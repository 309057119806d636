import { join } from "node:path";

export default {
  // Next.js and React are installed two folders above, once for all runs.
  turbopack: { root: join(import.meta.dirname, "../..") },
  // Types are checked beside, by the compiler of the tests.
  typescript: { ignoreBuildErrors: true },
};
