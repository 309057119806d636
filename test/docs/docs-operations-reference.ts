export { defineConfig } from "flotilla";
export { join } from "node:path";
