import react from "@vitejs/plugin-react";
import { defaultClientConditions, defineConfig } from "vite";

/** `npx vite examples/chat` serves the sources as they change, in front of a server that runs beside it. */
export default defineConfig({
  root: import.meta.dirname,
  // Wherever the page is served, its files are beside it.
  base: "./",
  plugins: [react()],
  // Flotilla's own sources, without a build; a project of your own takes what is in the package.
  resolve: { conditions: ["flotilla:source", ...defaultClientConditions] },
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
