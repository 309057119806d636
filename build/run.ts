/** `npm run build`: writes what is published, but for the declarations. */
import { rmSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { bundle } from "./bundle.ts";
import { buildDashboard } from "./dashboard.ts";
import { packageEntries, root } from "./entries.ts";

const [folder = `${root}dist`] = process.argv.slice(2);
// What is left of an earlier build would be published.
rmSync(folder, { recursive: true, force: true });
await bundle(packageEntries(), folder);
await buildDashboard(join(folder, "dashboard"));
