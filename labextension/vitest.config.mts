import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    environment: 'jsdom',
    include: ['test/**/*.test.ts'],
    // JupyterLab's packages are modules that name no file extensions.
    server: { deps: { inline: [/@jupyterlab/, /@lumino/] } }
  }
});
