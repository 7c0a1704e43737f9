// A site that reads addresses as Node's URL does: \ is /, and //x/cart is /cart of the host x.
import { createServer } from 'node:http';

createServer((request, response) => {
	let path = '';
	try {
		path = new URL(request.url, 'http://site').pathname;
	} catch (error) {
		response.statusCode = 400;
	}
	response.end(path === '/cart' ? 'the cart' : 'another page');
}).listen(Number(process.argv[2]), '127.0.0.1');
