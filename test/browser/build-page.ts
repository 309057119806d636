// Builds a page into a folder, in a process of its own: `build-page.ts <page> <folder>`, by the names in page-build.ts.
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { build } from "vite";
import { buildDashboard } from "../../build/dashboard.ts";

const [page, outDir] = process.argv.slice(2);
const chat = fileURLToPath(new URL("../../examples/chat/", import.meta.url));
const configFile = join(chat, "vite.config.ts");
const installed = fileURLToPath(new URL("../../node_modules/", import.meta.url));
/** The release of the AI SDK before. */
const older = {
  "@ai-sdk/react": join(installed, "ai-sdk-react-3"),
  ai: join(installed, "ai-sdk-react-3/node_modules/ai"),
};

if (page === "dashboard") await buildDashboard(outDir!);
else if (page === "chat") {
  process.env["NODE_ENV"] = "production";
  await build({ configFile, logLevel: "error", build: { outDir: outDir! } });
} else {
  // React looks twice only where it is built for development.
  process.env["NODE_ENV"] = "development";
  await build({
    configFile,
    logLevel: "error",
    mode: "development",
    root: page === "strict" ? chat : join(import.meta.dirname, page!.replace(/-6$/, "")),
    ...(page!.endsWith("-6") && { resolve: { alias: older } }),
    build: { outDir: outDir!, minify: false },
  });
}
