import { fileURLToPath } from "node:url";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

const source = (path: string) => fileURLToPath(new URL(`../../src/${path}`, import.meta.url));

/** `npx vite examples/chat` serves the sources as they change, in front of a server that runs beside it. */
export default defineConfig({
  root: import.meta.dirname,
  // Wherever the page is served, its files are beside it.
  base: "./",
  plugins: [react()],
  resolve: {
    // In a project of your own these come from the package.
    alias: [
      { find: /^flotilla\/client$/, replacement: source("client/index.ts") },
      { find: /^flotilla\/react$/, replacement: source("client/react/index.ts") },
      { find: /^flotilla\/ai-sdk$/, replacement: source("client/ai-sdk/index.ts") },
    ],
  },
  server: { proxy: { "/v1": { target: "http://127.0.0.1:8080", ws: true } } },
  build: {
    outDir: "dist",
    emptyOutDir: true,
    // A policy that allows no images from data in a page can stay as strict as it is.
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    chunkSizeWarningLimit: 1_000,
  },
});
